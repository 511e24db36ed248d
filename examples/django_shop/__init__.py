"""A Django project with an outbox, and handlers that change its models exactly once.

    python -m examples.django_shop                             # SQLite
    python -m examples.django_shop postgresql+psycopg://…      # the shop's database

It takes 100 orders, a fifth of which fail after they have published, and lets a worker bill what is
left. Then all messages come again: every order was billed once, and no other.

| file | content |
| --- | --- |
| `settings.py` | Django's settings; the database's URL is in `SHOP_DATABASE` |
| `models.py` | the shop's models, and `Handled`: which group has handled which message |
| `messages.py` | the app, its topics, the outbox; `QFRAME_STORE` and so on are qframe's options |
| `taking.py` | taking an order: a row and a message, as a view would |
| `handlers.py` | the consumer: `qframe worker examples.django_shop.handlers` |
| `tests.py` | tests, with Django's test runner |
"""
