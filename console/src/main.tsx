import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { askWho, who } from "./api/client.ts";
import { Login } from "./app/login.tsx";
import { Shell } from "./app/shell.tsx";
import "./app/state.ts";
import { ErrorBox } from "./ui/basics.tsx";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/ui.css";
import "./styles/pages.css";

function App() {
  const [failure, setFailure] = useState<Error | null>(null);
  const ask = () => {
    setFailure(null);
    askWho().catch(setFailure);
  };
  useEffect(ask, []);
  if (failure)
    return (
      <main class="login">
        <ErrorBox error={failure} retry={ask} />
      </main>
    );
  if (who.value === undefined) return null;
  return who.value ? <Shell /> : <Login />;
}

render(<App />, document.getElementById("app")!);
