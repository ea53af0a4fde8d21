"""`sextant demo-model`: a simulated model behind an OpenAI-compatible API, to try things on."""

from app.cli.terminal.console import fail_clearly
from app.demo.model_server import serve

command = fail_clearly(serve)
