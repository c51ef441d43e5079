// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { refusal, sentence, stepsOf } from "./actions";
import type { Action } from "./api";

const NONE: Action = {
  kind: "drain",
  does: "",
  now: "",
  dag: "",
  conf: {},
  pauses: [],
  unpauses: [],
  asks: false,
  hindrance: "",
};

test("DAGs are paused before one is run, and names are no paths", () => {
  const steps = stepsOf({ ...NONE, dag: "o/ps", pauses: ["land ö"], conf: { how: "retry" } }, "orders");
  expect(steps.map((s) => [s.method, s.path])).toEqual([
    ["PATCH", "api/v2/dags/land%20%C3%B6?update_mask=is_paused"],
    ["POST", "api/v2/dags/o%2Fps/dagRuns"],
  ]);
  expect(steps[0]?.body).toEqual({ is_paused: true });
  expect(steps[1]?.body).toMatchObject({ logical_date: null, conf: { how: "retry" } });
});

test("to resume unpauses and runs nothing", () => {
  expect(stepsOf({ ...NONE, unpauses: ["a", "b"] }, "orders").map((s) => s.body)).toEqual([
    { is_paused: false },
    { is_paused: false },
  ]);
});

test("a refusal is told in the words of who refused", () => {
  expect(refusal(403, '{"detail": "Forbidden"}')).toBe("Forbidden");
  expect(refusal(502, "<html>bad gateway</html>")).toBe("<html>bad gateway</html>");
  expect(refusal(500, "")).toBe("Airflow answered 500");
});

test("an effect is shown as a sentence", () => {
  expect(sentence("ends the run")).toBe("Ends the run.");
});
