package helper //nolint:testpackage // what the sandbox says is outside input, and only parse reads it

import (
	"bytes"
	"errors"
	"testing"

	"gotest.tools/v3/assert"
)

func TestAnswersOfTheSandboxAreChecked(t *testing.T) {
	a, err := parse([]byte("motd\nsandbox-broker:{\"stdout\":\"aGk=\"}\n"))
	assert.NilError(t, err)
	assert.Equal(t, string(a.Stdout), "hi")
	_, err = parse([]byte("sandbox-broker:{\"unknown\":true}"))
	assert.ErrorIs(t, err, ErrUnknown)
	for _, output := range []string{"", "hello", "sandbox-broker:{\"stdout\":\"aG"} {
		_, err = parse([]byte(output))
		assert.Check(t, err != nil && !errors.Is(err, ErrUnknown), "%q", output)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("sandbox-broker:{\"done\":{\"exit\":1}}"))
	f.Fuzz(func(t *testing.T, output []byte) {
		_, err := parse(output)
		assert.Check(t, err != nil || bytes.Contains(output, []byte(prefix)), "an answer has its prefix")
	})
}
