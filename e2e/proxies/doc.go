// Package proxies tries the broker behind real proxies: nginx, HAProxy and Caddy, as
// Debian has them, each with connections to the broker that it uses again.
//
// corpus.go has requests whose end or whose fields may be read in two ways, written
// byte by byte. What a proxy thinks is one request must be one request for the broker,
// and no token may be used for bytes of another client. To add a case is to add a line
// there. The way that docs/scaling.md leads from one broker to two behind HAProxy is followed in
// several_test.go. The tests are skipped where a proxy is not installed, and fail in CI.
package proxies
