"""What all tests share: random cases have no deadline, because machines are shared, and failures can be replayed."""

from hypothesis import settings

settings.register_profile("tracewise", deadline=None, print_blob=True)
settings.load_profile("tracewise")
