package redact_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
)

func TestAPieceOfASecretIsBlankedWhereATextWasCut(t *testing.T) {
	r := redact.New("sk-0123456789", "another-secret")
	for name, c := range map[string]struct{ text, want string }{
		"nothing was cut":          {"a sk-0123456789 b", "a (secret) b"},
		"its end comes first":      {"3456789 and more", "(secret) and more"},
		"its beginning comes last": {"the key is sk-01234", "the key is (secret)"},
		"both":                     {"secret, sk-012", "(secret), (secret)"},
		"nothing but a piece":      {"012345", "012345"},
		"nothing but its end":      {"456789", "(secret)"},
		"nothing":                  {"", ""},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, r.Part(c.text), c.want) })
	}
	var none *redact.Redactor
	assert.Equal(t, none.Part("text"), "text")
}

func TestNoPieceOfASecretIsLeftWhereverATextIsCut(t *testing.T) {
	const key = "sk-0123456789"
	r := redact.New(key)
	whole := strings.Repeat("before "+key+" between "+hex.EncodeToString([]byte(key))+" after ", 2)
	for i := range whole {
		for _, part := range []string{whole[i:], whole[:i]} {
			clean := r.Part(part)
			assert.Assert(t, !strings.Contains(clean, "1234"), clean)
			assert.Assert(t, !strings.Contains(clean, hex.EncodeToString([]byte("1234"))), clean)
		}
	}
}

func TestASecretInHexadecimalIsBlanked(t *testing.T) {
	r := redact.New(secret)
	for _, text := range []string{hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret)))} {
		assert.Equal(t, r.Text("a "+text+" b"), "a (secret) b")
		assert.Equal(t, r.Text("00"+text+"00"), "00(secret)00")
	}
}
