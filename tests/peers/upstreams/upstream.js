// An upstream with Node's parser: prints each request that the parser lets through, once its body
// is read, and answers 200.
"use strict";

const http = require("node:http");

http
  .createServer((request, response) => {
    request.resume();
    request.on("close", () => console.log(`${request.method} ${request.url}`));
    request.on("end", () => response.end(`node saw ${request.url}\n`));
  })
  .listen(Number(process.argv[2]), "127.0.0.1");
