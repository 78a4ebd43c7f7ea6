"""`gemjax serve`: a local proxy that shortens what agents send, and passes everything else through as it is."""
