"""Pure readers of model text, each in one linear pass.

The regular expressions here are made of single characters, fixed words and possessive quantifiers
(`*+`), which never give back what they took: reading takes time linear in the text, whatever the
text.
"""

from .fences import find_fences as find_fences
from .fences import read_fence as read_fence
from .json_text import read_json as read_json
from .json_text import read_json_document as read_json_document
from .json_text import read_object as read_object
from .tokenizer import Token as Token
from .tokenizer import TokenizedText as TokenizedText
from .tokenizer import Tokenizer as Tokenizer
from .tokenizer import find_closing_bracket as find_closing_bracket
from .tokenizer import find_value_end as find_value_end
from .tokenizer import read_value as read_value
