"""Encodings of one value: how other programs write it where they quote, escape or encode texts."""

import base64
import html
import json
from urllib.parse import quote, quote_plus

from ..._internal.regex import compile_late

_PERCENT_HEX = compile_late("%[0-9A-F]{2}")
_UNICODE_HEX = compile_late(r"(?<=\\u)[0-9a-f]{4}")
_GO, _JAVA, _NET = (
    {ord(sign): f"\\u{ord(sign):04x}" for sign in signs}
    for signs in ("&<>", "&<>='", "\"&'+<>`")
)


def encode_variants(value: str) -> set[str]:
    """Return a value as it is and in its other encodings; letters and digits alone have none but
    base64.
    """
    plain = value.encode("utf-8", "surrogatepass")
    encoded = {
        base64.b64encode(plain).decode(),
        base64.urlsafe_b64encode(plain).decode(),
    }
    forms = {value, *(form.rstrip("=") for form in encoded)}
    if not (value.isascii() and value.isalnum()):
        forms |= _in_python(value, plain) | _in_addresses(plain) | _in_html(value)
    forms |= {written for form in forms for written in _in_json(form)}
    forms |= {
        written for form in forms for written in _in_plain_json(form)
    }  # JSON in JSON
    return forms | encoded


def _in_python(value: str, plain: bytes) -> set[str]:
    """Return a value as `repr` and `ascii` show it, and its bytes: beside a double quote, an
    apostrophe is escaped.
    """
    beside = value + '"'
    shown = {
        repr(value)[1:-1],
        repr(beside)[1:-2],
        ascii(value)[1:-1],
        ascii(beside)[1:-2],
    }
    return shown | {repr(plain)[2:-1], repr(plain + b'"')[2:-2]}


def _in_addresses(plain: bytes) -> set[str]:
    """Return a value as written in a path, a query, a form, and by JavaScript's
    `encodeURIComponent`; hex in both cases.
    """
    forms = {
        quote(plain),
        quote(plain, safe=""),
        quote_plus(plain),
        quote(plain, safe="!'()*"),
    }
    return forms | {
        _PERCENT_HEX.sub(lambda found: found[0].lower(), form) for form in forms
    }


def _in_html(value: str) -> set[str]:
    """Return a value as text and as an attribute; Python, JavaScript, PHP and Go write quotes with
    other numbers.
    """
    attribute = html.escape(value)
    forms = {html.escape(value, quote=False), attribute}
    forms |= {attribute.replace("&#x27;", number) for number in ("&#39;", "&#039;")}
    forms.add(attribute.replace("&#x27;", "&#39;").replace("&quot;", "&#34;"))
    return forms | {
        form.encode("ascii", "xmlcharrefreplace").decode() for form in forms
    }


def _in_json(form: str) -> set[str]:
    """Return a value as Python and JavaScript write it, as PHP does (`\\/`), and as Go, Java and
    .NET (`\\u0026`).
    """
    as_ascii, as_it_is = (
        json.dumps(form)[1:-1],
        json.dumps(form, ensure_ascii=False)[1:-1],
    )
    php = {as_ascii.replace("/", "\\/"), as_it_is.replace("/", "\\/")}
    net = as_ascii.replace('\\"', '"').translate(_NET)
    in_capitals = {
        _UNICODE_HEX.sub(lambda found: found[0].upper(), written)
        for written in (as_ascii, net)
    }
    return {
        as_ascii,
        as_it_is,
        as_it_is.translate(_GO),
        as_it_is.translate(_JAVA),
        *php,
        *in_capitals,
    }


def _in_plain_json(form: str) -> set[str]:
    return {json.dumps(form, ensure_ascii=ascii_)[1:-1] for ascii_ in (True, False)}
