import { Empty } from "../../ui/basics.tsx";

export default function Page() {
  return <Empty title="Not written yet" />;
}
