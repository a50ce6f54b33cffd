package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"
)

// Only what an operator should look at is logged at error.
func TestTheLevelOfARequestInTheLog(t *testing.T) {
	for name, test := range map[string]struct {
		method, path, body string
		down               string
		line               string
		level              string
	}{
		"what a provider cannot do": {http.MethodPost, "/api/v1/instances", `{"provider":"first","capabilities":["ports"]}`, "", "status=501 code=SB015", "[INFO]"},
		"a provider that is down":   {http.MethodPost, "/api/v1/instances", `{}`, "told to be", "status=503 code=SB009", "[ERROR]"},
		"a probe that fails":        {http.MethodGet, "/readyz", "", "told to be", "route=/readyz status=503", "[DEBUG]"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			f.provider.Down = test.down
			f.do(test.method, test.path, test.body)
			var line string
			poll.WaitOn(t, func(poll.LogT) poll.Result { // it is written after the answer
				for l := range strings.Lines(f.log.String()) {
					if strings.Contains(l, test.line) {
						line = l
						return poll.Success()
					}
				}
				return poll.Continue("no such line in %s", f.log.String())
			}, poll.WithTimeout(2*time.Minute))
			assert.Assert(t, strings.Contains(line, test.level), line)
		})
	}
}
