from served import alice, bob, model_dir, raw, raw_bob, server, service_client  # noqa: F401
