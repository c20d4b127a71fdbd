import { useRef, useState } from "preact/hooks";
import { ApiError, endedBecause, login } from "../api/client.ts";
import { ErrorBox } from "../ui/basics.tsx";
import { Logo } from "../ui/icons.tsx";

export function Login() {
  const field = useRef<HTMLInputElement>(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    const key = field.current!.value.trim();
    if (!key) {
      setError("Enter your API key.");
      field.current!.focus();
      return;
    }
    setBusy(true);
    try {
      await login(key);
    } catch (failure) {
      const refused = failure instanceof ApiError && failure.status === 401;
      setError(refused ? "The server does not know this key." : (failure as Error).message);
      setBusy(false);
      field.current?.select();
    }
  };
  return (
    <main class="login">
      <form class="login-card" onSubmit={submit}>
        <div class="brand">
          <Logo />
          tuft
        </div>
        <div>
          <h1>Log in to the console</h1>
          <p class="muted">With the API key that your programs use.</p>
        </div>
        <label class="field">
          API key
          <input
            ref={field}
            class="input"
            type="password"
            name="key"
            autocomplete="current-password"
            autofocus
            spellcheck={false}
          />
        </label>
        {(error || endedBecause.value) && <ErrorBox error={error || endedBecause.value} />}
        <button type="submit" class="btn primary" disabled={busy}>
          {busy ? "Logging in …" : "Log in"}
        </button>
        <p class="muted login-note">
          Keys are those of <code>authorized_users</code> in the server's configuration. This browser keeps a session of
          at most 12 hours, not the key.
        </p>
      </form>
    </main>
  );
}
