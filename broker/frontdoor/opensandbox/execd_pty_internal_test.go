package opensandbox

import (
	"testing"
	"unicode/utf8"

	"github.com/coder/websocket"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestWhatATerminalRuns(t *testing.T) {
	for name, test := range map[string]struct {
		body terminalBody
		argv []string
	}{
		"a shell":                   {terminalBody{}, []string{"bash", "--norc", "--noprofile"}},
		"a command":                 {terminalBody{Command: "top"}, []string{"bash", "--norc", "--noprofile", "-c", "top"}},
		"a command with a variable": {terminalBody{Command: "echo $A"}, []string{"bash", "--norc", "--noprofile", "-c", "echo $A"}},
	} {
		t.Run(name, func(t *testing.T) {
			req := test.body.request()
			assert.Check(t, is.DeepEqual(req.Argv, test.argv))
			assert.Check(t, is.Equal(*req.Terminal, sdk.TerminalSize{Rows: 24, Columns: 80}))
		})
	}
}

// FuzzFrames looks for frames that are taken for what they are not.
func FuzzFrames(f *testing.F) {
	for _, seed := range []string{"", "\x00ls\n", "\x01", "null", `{"type":"stdin","data":"x"}`, `{"type":"resize","cols":80,"rows":24}`, `{"TYPE":"resize","cols":65536,"rows":1e3}`, `{"type":"signal","signal":"SIGINT"}`, `{"type":"ping","x":{}}`} {
		f.Add(true, []byte(seed))
		f.Add(false, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, binary bool, frame []byte) {
		kind := websocket.MessageText
		if binary {
			kind = websocket.MessageBinary
		}
		got, err := readFrame(kind, frame)
		if err != nil {
			assert.DeepEqual(t, got.kind, "")
			assert.Assert(t, err.Error() != "" && utf8.ValidString(err.Error()) && len(err.Error()) < 120, "it fits the reason of a close")
			return
		}
		if binary {
			assert.Equal(t, got.kind, frameStdin)
			assert.Equal(t, "\x00"+string(got.typed), string(frame))
			return
		}
		assert.Equal(t, got.kind == frameResize, got.size.Rows > 0 && got.size.Columns > 0)
		assert.Equal(t, got.kind == frameSignal, got.signal != "")
		assert.Assert(t, got.kind == frameStdin || len(got.typed) == 0)
		assert.Assert(t, len(got.typed) <= 3*len(frame), "what is no UTF-8 becomes three bytes at most")
	})
}
