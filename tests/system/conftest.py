from served import alice, bob, model_dir, raw, raw_bob, sdk_cli, server, service_client  # noqa: F401
