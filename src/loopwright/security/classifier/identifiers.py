"""Personal numbers: telephones, cards, accounts and national numbers, by their form and their check
digits.

Each pattern begins with a digit and looks back from there, so that text without digits is passed
over quickly.
"""

import re
from collections.abc import Callable

_BEFORE = 48  # characters before a number in which a word may say what it is
_ALONE = r"(?<![\w.@#$%/\u20ac-].)"  # behind the first digit: it is not inside a word, an address or an amount


# --- accounts (ISO 13616-1) ---

_LENGTHS = {
    15: "NO", 16: "BE", 18: "DK FI FO GL NL", 19: "MK SI", 20: "AT BA EE KZ LT LU XK", 21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS", 23: "AE GI IL", 24: "AD CZ ES MD PK RO SA SE SK TN VA", 25: "PT", 26: "IS TR",
    27: "FR GR IT MC SM", 28: "AL AZ CY DO GT HU LB PL", 29: "BR EG PS QA UA", 30: "JO KW MU", 31: "MT SC",
}  # fmt: skip
_LENGTH_OF = {
    country: length
    for length, countries in _LENGTHS.items()
    for country in countries.split()
}


def _is_account(found: "re.Match[str]") -> bool:
    """Return whether a number has the length of its country, and is 1 modulo 97 (ISO 7064)."""
    number = found.string[found.start() - 2 : found.start()] + re.sub(
        "[ -]", "", found[0]
    )
    length = _LENGTH_OF.get(number[:2], 0)
    return (
        len(number) >= length > 0
        and int("".join(str(int(sign, 36)) for sign in _rotate(number[:length]))) % 97
        == 1
    )


def _rotate(number: str) -> str:
    return number[4:] + number[:4]


# --- national numbers with check digits ---

_DNI_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
_ODD = dict(
    zip(
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        (1, 0, 5, 7, 9, 13, 15, 17, 19, 21) * 2
        + (2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23),
        strict=True,
    )
)
_RESIDENT = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)


def _get_digits(written: str) -> str:
    return re.sub("[^0-9]", "", written)


def _sum_weighted(digits: str, weights: tuple[int, ...]) -> int:
    return sum(
        int(digit) * weight for digit, weight in zip(digits, weights, strict=False)
    )


def _is_cpf(found: "re.Match[str]") -> bool:
    """Check a number of Brazil: two check digits modulo 11."""
    digits = _get_digits(found[0])
    checks = [
        _sum_weighted(digits, tuple(range(first, 1, -1))) * 10 % 11 % 10
        for first in (10, 11)
    ]
    return len(set(digits)) > 1 and digits[9:] == f"{checks[0]}{checks[1]}"


def _is_dni(found: "re.Match[str]") -> bool:
    """Check a number of Spain: a letter by the remainder modulo 23."""
    return _DNI_LETTERS[int(found[0][:8]) % 23] == found[0][-1]


def _is_nie(found: "re.Match[str]") -> bool:
    """Check a number of a resident of Spain: as `_is_dni` with X, Y or Z in front, which count as
    0, 1 and 2.
    """
    first = "XYZ".index(found.string[found.start() - 1])
    return _DNI_LETTERS[int(f"{first}{found[0][:7]}") % 23] == found[0][-1]


def _is_nir(found: "re.Match[str]") -> bool:
    """Check a number of France: a key of two digits modulo 97."""
    number = found[0].replace(" ", "").replace("2A", "19").replace("2B", "18")
    return 97 - int(number[:13]) % 97 == int(number[13:])


def _is_codice(found: "re.Match[str]") -> bool:
    """Check a number of Italy: a letter by the positions of the others."""
    number = found.string[found.start() - 6 : found.end()]
    even = (int(sign) if sign.isdigit() else ord(sign) - 65 for sign in number[1:15:2])
    return (
        chr(65 + (sum(_ODD[sign] for sign in number[:15:2]) + sum(even)) % 26)
        == number[15]
    )


def _is_resident(found: "re.Match[str]") -> bool:
    """Check a number of China: a check digit modulo 11, with X for ten (GB 11643)."""
    return (
        "10X98765432"[_sum_weighted(found[0], _RESIDENT) % 11] == found[0][17].upper()
    )


# --- cards, telephones, social security ---

_SSN = re.compile(r"(?!000|666|9)[0-9]{3}([ -])(?!00)[0-9]{2}\1(?!0000)[0-9]{4}")
_SSN_WORD = re.compile(r"(?:ssn|social security)[^\n]{0,40}\Z", re.IGNORECASE)
_CARD = re.compile(
    r"[0-9]{14,16}|[0-9]{4}([ -])[0-9]{4}\1[0-9]{4}\1[0-9]{4}|[0-9]{4}([ -])[0-9]{6}\2[0-9]{4,5}"
)
_ISSUER = re.compile(
    r"4[0-9]{15}|(?:5[1-5]|2[2-7]|35|65)[0-9]{14}|(?:6011|64[4-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[689][0-9])[0-9]{11}"
)
_AMERICAN = re.compile(
    r"(?:1[ .-]?)?\(?(?P<area>[2-9][0-9]{2})(?:\) ?|[ .-])[2-9][0-9]{2}[ .-][0-9]{4}"
)
_TOLL_FREE = {"800", "833", "844", "855", "866", "877", "888"}
_PHONE_WORD = re.compile(
    r"(?:tel|phone|mobile?|mobil|handy|cell|fax|whatsapp|call|ring|rufen|t\u00e9l|m\u00f3vil|celular|telefon\w{0,2}"
    r"|portable|\u643a\u5e2f|\u96fb\u8a71|\u7535\u8bdd|\u624b\u673a|\u0442\u0435\u043b)[^0-9\n]{0,24}\Z",
    re.IGNORECASE,
)


def _is_card_or_telephone(found: "re.Match[str]") -> bool:
    """Return whether nine digits or more are a card, a telephone or a social security number."""
    written, text = found[0], found.string
    before = text[max(found.start() - _BEFORE, 0) : found.start()]
    return (
        _is_social_security(written, before)
        or _is_card(written)
        or _is_telephone(written, before)
    )


def _is_social_security(written: str, before: str) -> bool:
    number = _SSN.fullmatch(written)
    if number is None:
        return False
    return number[1] == "-" or _SSN_WORD.search(before) is not None


def _is_card(written: str) -> bool:
    digits = _get_digits(written)
    if _CARD.fullmatch(written) is None or _ISSUER.fullmatch(digits) is None:
        return False
    return _has_check_digit(digits)


def _is_telephone(written: str, before: str) -> bool:
    digits = _get_digits(written)
    american = _AMERICAN.fullmatch(written)
    if american is not None:
        return american["area"] not in _TOLL_FREE
    if before.endswith(("+", "+(")):
        return len(digits) <= 15
    return len(digits) <= 13 and _PHONE_WORD.search(before) is not None


def _has_check_digit(digits: str) -> bool:
    """Return whether the last digit is that of Luhn (ISO/IEC 7812-1, annex B), and not nearly all
    are the same.
    """
    doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (doubled + sum(map(int, digits[-1::-2]))) % 10 == 0 and len(set(digits)) > 2


# --- all of them: what follows the first digit ---

_BODIES: tuple[tuple[str, Callable[["re.Match[str]"], bool]], ...] = (
    (
        rf"{_ALONE}(?:[ .()/-]{{0,3}}+[0-9]){{8,18}}+(?![0-9]|[ ./-]?[A-Za-z]{{0,2}}[0-9]|\w)",
        _is_card_or_telephone,
    ),
    (
        r"(?<=\b[A-Z]{2}.)[0-9](?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,3})?\b",
        _is_account,
    ),
    (rf"{_ALONE}[0-9]{{2}}\.[0-9]{{3}}\.[0-9]{{3}}-[0-9]{{2}}(?![\w-]|\.\w)", _is_cpf),
    (rf"{_ALONE}[0-9]{{7}}-?[A-HJ-NP-TV-Z](?![\w-])", _is_dni),
    (r"(?<=(?<![\w.-])[XYZ].)[0-9]{6}-?[A-HJ-NP-TV-Z](?![\w-])", _is_nie),
    (
        rf"{_ALONE}(?<=[12]) ?[0-9]{{2}} ?[01][0-9] ?[0-9][0-9AB](?: ?[0-9]{{3}}){{2}} ?[0-9]{{2}}(?!\w|\.\w)",
        _is_nir,
    ),
    (r"(?<=\b[A-Z]{6}.)[0-9][A-EHLMPRST][0-9]{2}[A-Z][0-9]{3}[A-Z]\b", _is_codice),
    (
        rf"{_ALONE}[0-9]{{5}}(?:19|20)[0-9]{{2}}[01][0-9][0-3][0-9]{{4}}[0-9Xx](?!\w)",
        _is_resident,
    ),
)
_ANY = re.compile(f"[0-9](?={'|'.join(body for body, _ in _BODIES)})")
_FORMS = tuple((re.compile(f"[0-9]{body}"), check) for body, check in _BODIES)


def has_personal_number(text: str) -> bool:
    """Return whether a text has a personal number."""
    return any(_is_at(text, found.start()) for found in _ANY.finditer(text))


def _is_at(text: str, place: int) -> bool:
    return any(
        found is not None and check(found)
        for form, check in _FORMS
        for found in (form.match(text, place),)
    )
