"""Pure readers of model text, each in one linear pass.

The regular expressions here are made of single characters, fixed words and possessive quantifiers (`*+`), which never
give back what they took: reading takes time linear in the text, whatever the text.
"""

from .fences import code_fences as code_fences
from .fences import read_fence as read_fence
from .markers import Mark as Mark
from .markers import Markers as Markers
from .markers import Scan as Scan
from .markers import end_of as end_of
from .markers import find_close as find_close
from .markers import value_of as value_of
from .strict import read_json as read_json
from .strict import read_object as read_object
from .strict import strict_json as strict_json
