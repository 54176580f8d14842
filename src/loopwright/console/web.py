"""What the console uses of Starlette, which comes with the extra `console`."""

from ..errors import ConfigError

try:
    from starlette.applications import Starlette as Starlette
    from starlette.requests import Request as Request
    from starlette.responses import JSONResponse as JSONResponse
    from starlette.responses import Response as Response
    from starlette.responses import StreamingResponse as StreamingResponse
    from starlette.routing import Route as Route
    from starlette.types import ASGIApp as ASGIApp
except ModuleNotFoundError as missing:  # pragma: no cover - tried without the extra
    raise ConfigError(
        f"the console needs {missing.name}: pip install 'loopwright[console]'"
    ) from None
