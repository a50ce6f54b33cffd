package e2b

import (
	"net/http"
	"testing"

	"gotest.tools/v3/assert"
)

// What a host and fields say is one thing, or nothing.
func FuzzTarget(f *testing.F) {
	f.Add("8000-abc123.e2b.test", "abc123", "8000")
	f.Add("49983-abc123.e2b.test", "", "")
	f.Add("sandbox.e2b.test", "abc123", "65536")
	f.Add("x.api.e2b.test", "a\x00", "-")
	domain, d := "e2b.test", &Door{}
	d.domain.Store(&domain)
	f.Fuzz(func(t *testing.T, host, sandbox, port string) {
		fields := http.Header{}
		if sandbox != "" {
			fields[headerSandbox] = []string{sandbox}
		}
		if port != "" {
			fields[headerPort] = []string{port}
		}
		at, err := d.targetOf(host, func(name string) []string { return fields[name] })
		label, program := d.programHost(host)
		switch {
		case err != nil:
			assert.Assert(t, at == target{})
			assert.Assert(t, program || d.ownHost(host), "nobody else's host is refused")
		case at.port == "":
			assert.Assert(t, !program)
			assert.Equal(t, at.sandbox, sandbox)
		default:
			assert.Equal(t, host, at.port+"-"+at.sandbox+"."+domain)
			assert.Assert(t, isID(at.sandbox))
			assert.Assert(t, sandbox == "" || sandbox == at.sandbox)
			assert.Assert(t, port == "" || port == at.port)
			assert.Equal(t, program, at.port != portEnvd && at.port != portInterpreter)
			assert.Assert(t, !program || label == at.port+"-"+at.sandbox)
		}
	})
}
