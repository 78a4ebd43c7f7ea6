"""A provider for tests: checks requests as the real ones do, streams, counts cached prefixes, bills, fails on order.

It shares no code with gemjax: the rules are written from the providers' documentation and their error messages.
"""
