"""Images and documents of a server's results, as attachments that a model may see."""

import base64

from ...attachments import IMAGE_TYPES, Attachment, detect_media_type

PDF = "application/pdf"


def load_content(kind: str, data: str, name: str = "") -> Attachment | None:
    """Return an image or a PDF of base64 data; `None` where the bytes are neither, whatever the server says."""
    try:
        found = detect_media_type(base64.b64decode(data, validate=True))
    except ValueError:
        return None
    if found in IMAGE_TYPES:
        return Attachment("image", found, data, name=name)
    if found == PDF and kind == PDF:
        return Attachment("document", found, data, name=name)
    return None
