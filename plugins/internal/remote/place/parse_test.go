package place //nolint:testpackage // what the sandbox says is outside input, and only parse reads it

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"
)

func TestAnswersOfTheSandboxAreChecked(t *testing.T) {
	var a answer
	assert.NilError(t, parse([]byte("motd\nsandbox-broker:{\"stdout\":\"aGk=\"}\n"), &a))
	assert.Equal(t, string(a.Stdout), "hi")
	for _, output := range []string{"", "hello", "sandbox-broker:{\"stdout\":\"aG"} {
		assert.Check(t, parse([]byte(output), &a) != nil, "%q", output)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("sandbox-broker:{\"done\":{\"exit\":1}}"))
	f.Fuzz(func(t *testing.T, output []byte) {
		var a answer
		err := parse(output, &a)
		assert.Check(t, err != nil || bytes.Contains(output, []byte(prefix)), "an answer has its prefix")
	})
}
