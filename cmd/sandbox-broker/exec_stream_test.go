package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
)

func TestWhatExecShowsOfAStream(t *testing.T) {
	const began = "event: started\ndata: {\"execution_id\":\"x\",\"instance_id\":\"a:b:c\",\"provider\":\"p\"}\n\n"
	for name, test := range map[string]struct {
		events      []string
		code        int
		out, stderr string
	}{
		"output on its streams": {
			[]string{`stdout {"text":"one\n"}`, `stderr {"text":"two\n"}`, `stdout {"text":"three\n"}`, `done {"status":"succeeded"}`},
			0, "one\nthree\n", "two\n",
		},
		"bytes that are not UTF-8":        {[]string{`stdout {"base64":"/w=="}`, `done {"status":"succeeded"}`}, 0, "\xff", ""},
		"the result on a line of its own": {[]string{`stdout {"text":"x"}`, `result {"result":{"a":  1}}`, `done {"status":"succeeded"}`}, 0, "x\n{\"a\":  1}\n", ""},
		"a result that is null":           {[]string{`result {"result":null}`, `done {"status":"succeeded"}`}, 0, "null\n", ""},
		"what it does not know":           {[]string{`news {"a":1}`, `done {"status":"succeeded","b":2}`}, 0, "", ""},
		"the code's exit code":            {[]string{`done {"status":"failed","exit_code":3}`}, 3, "", ""},
		"cut output":                      {[]string{`done {"status":"succeeded","truncated":true}`}, 0, "", "sandbox-broker: the output was cut at the limit\n"},
		"a timeout": {
			[]string{`done {"status":"timeout","error":{"code":"SB005","title":"execution timeout","detail":"after 1s"}}`},
			124, "", "sandbox-broker: SB005 execution timeout: after 1s\n",
		},
		"a failure after the start": {
			[]string{`stdout {"text":"x"}`, `error {"code":"SB009","title":"provider unavailable","detail":"gone","status":503,"request_id":"r1"}`},
			3, "x", "sandbox-broker: SB009 provider unavailable: gone (request r1)\n",
		},
		"an end that is missing": {[]string{`stdout {"text":"x"}`}, 3, "x", "sandbox-broker: the broker's answer broke off: unexpected EOF\n"},
		"nonsense":               {[]string{`done [1]`}, 3, "", "sandbox-broker: the broker's event done cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Check(t, cmp.Equal(r.Header.Get("Accept"), "text/event-stream"))
				w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
				_, _ = io.WriteString(w, began)
				for _, e := range test.events {
					name, data, _ := strings.Cut(e, " ")
					_, _ = io.WriteString(w, ": ping\n\nevent: "+name+"\ndata: "+data+"\n\n")
				}
			}))
			t.Cleanup(server.Close)
			got := runExec(t, "1", "-", "--url", server.URL)
			assert.Equal(t, got.out, test.out)
			assert.Check(t, cmp.Contains(got.err, test.stderr))
			assert.Equal(t, got.code, test.code)
		})
	}
}
