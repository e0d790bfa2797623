/** Write src/openapi.ts: `manage.py spectacular --format openapi-json | node generate_types.mjs [FILE]` (`make docs`). */

import { writeFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import openapi, { astToString } from "openapi-typescript";

const document = JSON.parse(await text(process.stdin));
// Only the schemas: the client's own code has the addresses, and the API reference has the examples.
const schemas = { openapi: document.openapi, info: document.info, paths: {}, components: { schemas: document.components.schemas } };
const types = astToString(await openapi(schemas, { alphabetize: true }));
writeFileSync(process.argv[2] ?? "src/openapi.ts", `// Written by generate_types.mjs from the OpenAPI document: do not change it.\n${types}`);
