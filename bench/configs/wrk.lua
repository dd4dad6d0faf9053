-- wrk: `wrk … -s wrk.lua URL [post|user]`. Prints the result as one line of JSON besides wrk's own text.

function init(arguments)
  if arguments[1] == "post" then
    wrk.method = "POST"
    wrk.headers["Content-Type"] = "application/octet-stream"
    wrk.body = string.rep("q", 1024)
  elseif arguments[1] == "user" then
    wrk.headers["X-User"] = "7"
  end
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"seconds":%.6f,"errors":%d,"p50_ns":%d,"p99_ns":%d}\n',
    summary.requests,
    summary.duration / 1e6,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency:percentile(50) * 1000,
    latency:percentile(99) * 1000))
end
