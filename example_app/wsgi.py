"""The app, for WSGI servers: ``gunicorn -c example_app/gunicorn.conf.py example_app.wsgi:app``."""

from . import create_app

app = create_app()
