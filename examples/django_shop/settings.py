"""Django's settings; the rest of a project's would stand here too."""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import make_url

_url = make_url(os.environ.get("SHOP_DATABASE", "sqlite:///django-shop.db"))
_is_sqlite = _url.get_backend_name() == "sqlite"

SECRET_KEY = os.environ.get("SHOP_SECRET", "only for this example")
INSTALLED_APPS = ["examples.django_shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATABASES: dict[str, Any] = {
    "default": {
        "ENGINE": f"django.db.backends.{'sqlite3' if _is_sqlite else 'postgresql'}",
        "NAME": _url.database,
        "USER": _url.username or "",
        "PASSWORD": _url.password or "",
        "HOST": _url.host or "",
        "PORT": _url.port or "",
        "CONN_MAX_AGE": 60,  # without it each message has a new connection
        "CONN_HEALTH_CHECKS": True,
        # A transaction of SQLite's that reads first and then writes fails beside another writer.
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20} if _is_sqlite else {},
    }
}
