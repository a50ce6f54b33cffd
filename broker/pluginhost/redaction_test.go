package pluginhost

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// Where a text of a plugin is cut, what is left of a secret there shows no piece of
// it.
func TestNoPieceOfASecretIsLeftWhereALineIsCut(t *testing.T) {
	const secret, piece = "sk-0123456789-abcdefghij", "0123456789"
	for _, before := range []int{maxLogLine, maxLogLine - 1, maxLogLine - 8, maxLogLine - 16, maxLogLine - len(secret) + 1, maxLogLine - len(secret)} {
		var out bytes.Buffer
		log := newPluginLog(hclog.New(&hclog.LoggerOptions{Output: &out}), nil)
		log.hide([]string{secret})
		stream := log.stream("stderr")
		fmt.Fprintf(stream, "%s%s and more\n", strings.Repeat("x", before), secret)
		stream.flush()
		assert.Check(t, is.Contains(out.String(), "cut=true"))
		assert.Check(t, !strings.Contains(out.String(), piece[:5]), "%d: %q", before, out.String()[max(0, out.Len()-100):])
	}
}

func TestNoPieceOfASecretIsLeftWhereAValueIsCut(t *testing.T) {
	const secret = "sk-0123456789-abcdefghij"
	var out bytes.Buffer
	log := newPluginLog(hclog.New(&hclog.LoggerOptions{Output: &out}), nil)
	log.hide([]string{secret})
	stream := log.stream("stderr")
	fmt.Fprintf(stream, "{\"@message\":\"m\",\"value\":\"%s%s\"}\n", strings.Repeat("x", maxLogValue-10), secret)
	text := out.String()
	assert.Check(t, strings.Contains(text, `value="xxx`), "%q", text[:60])
	assert.Check(t, !strings.Contains(text, "sk-"), "%q", text[max(0, len(text)-60):])
}
