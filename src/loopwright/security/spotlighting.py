"""Spotlighting, under the name by which applications know it; the code is beside the readers of text."""

from ..parsing.spotlighting import CONTEXT_PREFIX as CONTEXT_PREFIX
from ..parsing.spotlighting import CUT as CUT
from ..parsing.spotlighting import GUIDANCE_PREFIX as GUIDANCE_PREFIX
from ..parsing.spotlighting import MAX_SOURCE as MAX_SOURCE
from ..parsing.spotlighting import MAX_UNFENCED as MAX_UNFENCED
from ..parsing.spotlighting import OPERATOR_CALL_PREFIX as OPERATOR_CALL_PREFIX
from ..parsing.spotlighting import fence as fence
from ..parsing.spotlighting import mask_delimiters as mask_delimiters
from ..parsing.spotlighting import quote as quote
from ..parsing.spotlighting import spotlight as spotlight
from ..parsing.spotlighting import strip_control_characters as strip_control_characters
