package attackers

import (
	"net/http"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// ofFraming are requests whose ends are not where they seem to be, or do not come.
func ofFraming() []class {
	framed := func(lines, rest string) string {
		return "POST /api/v1/instances HTTP/1.1\r\nHost: x\r\nX-API-Key: " + harness.Token + "\r\nContent-Type: application/json\r\n" + lines + "\r\n" + rest
	}
	const inside = "DELETE {victim} HTTP/1.1\r\nHost: x\r\nX-API-Key: " + harness.Token + "\r\n\r\n"
	bad := []int{http.StatusBadRequest}
	nothing := func(t *testing.T, s *scene, _ harness.Answer) {
		var list struct{ Instances []struct{ ID string } }
		s.b.Do(http.MethodGet, "/api/v1/instances", harness.Token, nil).Into(t, &list)
		assert.Check(t, is.Len(list.Instances, 2), "no instance has come, and none has gone")
	}
	noFile := func(t *testing.T, s *scene, _ harness.Answer) {
		assert.Equal(t, s.b.Do(http.MethodGet, s.victim+"/files/content?path=cut", harness.Token, nil).Status, http.StatusNotFound)
	}
	unfinished := []int{0, http.StatusBadRequest, http.StatusRequestTimeout}
	return []class{
		{"framing that is read in two ways", []attack{
			{name: "a length with a space before its colon", raw: framed("Content-Length : 96\r\n", inside), status: bad, holds: nothing},
			{name: "an encoding with a tab before its colon", raw: framed("Transfer-Encoding\t: chunked\r\n", "0\r\n\r\n"+inside), status: bad, holds: nothing},
			{name: "a folded first line", raw: "POST /api/v1/instances HTTP/1.1\r\n Content-Length: 96\r\nHost: x\r\nX-API-Key: " + harness.Token + "\r\n\r\n" + inside, status: bad, holds: nothing},
			{name: "a folded length", raw: framed("Content-Length:\r\n 96\r\n", inside), status: bad, holds: nothing},
			{name: "both", raw: framed("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+inside), status: bad, holds: nothing},
			{name: "two lengths", raw: framed("Content-Length: 0\r\nContent-Length: 96\r\n", inside), status: bad, holds: nothing},
		}},
		{"unfinished bodies", []attack{
			{name: "of JSON", raw: framed("Content-Length: 100\r\n", `{"language":"python"}`), status: unfinished, holds: nothing},
			{name: "of JSON in chunks", raw: framed("Transfer-Encoding: chunked\r\n", "15\r\n{\"language\":\"python\"}\r\n"), status: unfinished, holds: nothing},
			{name: "of a file", raw: "PUT {victim}/files/content?path=cut HTTP/1.1\r\nHost: x\r\nX-API-Key: " + harness.Token + "\r\nContent-Type: application/octet-stream\r\nContent-Length: 100\r\n\r\nhalf", status: unfinished, holds: noFile},
			{name: "of a file in chunks", raw: "PUT {victim}/files/content?path=cut HTTP/1.1\r\nHost: x\r\nX-API-Key: " + harness.Token + "\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", status: unfinished, holds: noFile},
		}},
	}
}
