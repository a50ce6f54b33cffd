// The plan, for the three agents in JavaScript; each brings the calls of its own client.
import { readFile } from "node:fs/promises";

// What is refused ends the agent with a sentence.
process.on("uncaughtException", (error) => {
  const { code, message } = error.error?.code ? error.error : error; // OpenSandbox's has the broker's answer inside
  console.error("agent:", code ?? "", message);
  process.exit(1);
});

export const url = process.env.BROKER_URL;
export const token = process.env.BROKER_TOKEN;

const plan = (name) => readFile(new URL("plan/" + name, import.meta.url), "utf8");
const sorted = (_, value) =>
  value?.constructor === Object ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))) : value;

// work carries the plan out. run answers with whether the program failed, and all that it
// said: on its standard output, or where it failed on its standard error.
export async function work({ upload, run, download, destroy }) {
  try {
    await upload("orders.csv", await plan("orders.csv"));
    const steps = [];
    const step = async (program) => {
      const { failed, said } = await run(await plan(program));
      steps.push({ run: program, failed, said: said.trimEnd().split("\n").at(-1) });
      return failed;
    };
    for (const { run: program, if_it_fails: mended } of JSON.parse(await plan("plan.json"))) {
      if ((await step(program)) && (!mended || (await step(mended)))) throw new Error(program + " has failed");
    }
    const result = JSON.parse(await download("result.json"));
    console.log(JSON.stringify({ chart: await download("chart.svg"), result, steps }, sorted, 2));
  } finally {
    await destroy();
  }
}
