package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
)

const secret = `p/w+"ö <&>\k`

func TestASecretIsBlankedInEveryForm(t *testing.T) {
	r := redact.New("other-secret", secret)
	marshalled, err := json.Marshal(map[string]string{"token": secret})
	assert.NilError(t, err)
	for name, c := range map[string]struct{ text, want string }{
		"as it is":             {"a " + secret + " b", "a (secret) b"},
		"twice":                {secret + secret, "(secret)(secret)"},
		"two secrets":          {"other-secret" + secret, "(secret)(secret)"},
		"base64":               {base64.StdEncoding.EncodeToString([]byte(secret)), "(secret)=="},
		"base64 of URLs":       {base64.RawURLEncoding.EncodeToString([]byte(secret)), "(secret)"},
		"a query":              {"https://x/?k=" + url.QueryEscape(secret) + "&x=1", "https://x/?k=(secret)&x=1"},
		"a path":               {"https://x/" + url.PathEscape(secret) + "/y", "https://x/(secret)/y"},
		"JSON":                 {string(marshalled), `{"token":"(secret)"}`},
		"JSON without HTML":    {`"p/w+\"ö <&>\\k"`, `"(secret)"`},
		"Go's %q":              {fmt.Sprintf("%q", secret), `"(secret)"`},
		"Go's %+q":             {fmt.Sprintf("%+q", secret), `"(secret)"`},
		"an URL in an error":   {(&url.Error{Op: "Get", URL: "https://x/?k=" + url.QueryEscape(secret), Err: io.EOF}).Error(), `Get "https://x/?k=(secret)": EOF`},
		"nothing of it":        {"a p/w b", "a p/w b"},
		"something like it":    {strings.ToUpper(secret), strings.ToUpper(secret)},
		"the name of a secret": {"token", "token"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, r.Text(c.text), c.want) })
	}
}

func TestASecretWithinBase64IsBlanked(t *testing.T) {
	key := "sk-0123456789abcdef"
	r := redact.New(key)
	for _, user := range []string{"", "a", "ab", "abc", "abcd:"} {
		for _, after := range []string{"", "x", "xy", "xyz"} {
			text := r.Text("Basic " + base64.StdEncoding.EncodeToString([]byte(user+key+after)))
			assert.Assert(t, is.Contains(text, redact.Blank), "%q %q", user, after)
			encoded := base64.StdEncoding.EncodeToString([]byte(user + key + after))
			// At most the characters at its ends, which are mixed with others, are left.
			core := strings.TrimRight(encoded[(len(user)*8+5)/6:], "=")
			assert.Assert(t, len(text) <= len("Basic ")+len(encoded)-len(core)+len(redact.Blank)+len(after)*8/6+4, text)
		}
	}
}

func TestShortSecretsAreLeftAlone(t *testing.T) {
	text := "an error on port 8080"
	assert.Equal(t, redact.New("", "on", "8080", "      ", "error").Text(text), text)
	assert.Equal(t, redact.New("an error").Text(text), "(secret) on port 8080")
}

func TestLinesOfALongSecretAreBlankedOneByOne(t *testing.T) {
	key := "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nshort\n-----END KEY-----\n"
	r := redact.New(key)
	assert.Equal(t, r.Text("line: MIIEvQIBADANBgkqhkiG9w0B"), "line: (secret)")
	assert.Equal(t, r.Text("short"), "short")
	assert.Equal(t, r.Text(key), "(secret)")
	assert.Equal(t, r.Text(strings.TrimSpace(key)+"."), "(secret).")
}

func TestNoRedactorChangesNothing(t *testing.T) {
	var r *redact.Redactor
	assert.Equal(t, r.Text("x"), "x")
	assert.Equal(t, r.Error(io.EOF), io.EOF)
	assert.NilError(t, redact.New(secret).Error(nil))
}

func TestAnErrorKeepsItsCodeAndItsIdentity(t *testing.T) {
	r := redact.New("hunter2hunter2")
	inner := fmt.Errorf("answer hunter2hunter2: %w", io.ErrUnexpectedEOF)

	plain := r.Error(inner)
	assert.Error(t, plain, "answer (secret): unexpected EOF")
	assert.ErrorIs(t, plain, io.ErrUnexpectedEOF)
	assert.Assert(t, errors.Unwrap(plain) == nil)

	coded := sdk.FieldErrorf(sdk.CodeConnectionFailed, "token", "refused: %w", inner)
	coded.RetryAfter = 5
	clean := r.Error(coded)
	assert.Error(t, clean, "SB003: token: refused: answer (secret): unexpected EOF")
	assert.ErrorIs(t, clean, io.ErrUnexpectedEOF)
	e, ok := clean.(*sdk.Error) //nolint:errorlint // nothing is put around it
	assert.Assert(t, ok)
	assert.Equal(t, e.RetryAfter, coded.RetryAfter)
	assert.Assert(t, is.Contains(coded.Message, "hunter2"), "the original stays as it was")

	wrapped := r.Error(fmt.Errorf("create hunter2hunter2: %w", coded))
	assert.Error(t, wrapped, "create (secret): SB003: token: refused: answer (secret): unexpected EOF")
	assert.Equal(t, sdk.CodeOf(wrapped), sdk.CodeConnectionFailed)
	e, _ = errors.AsType[*sdk.Error](wrapped)
	assert.Assert(t, !strings.Contains(e.Message, "hunter2"))
	assert.ErrorIs(t, wrapped, io.ErrUnexpectedEOF)
}

func TestSecretsAreThoseOfTheSchema(t *testing.T) {
	schema := sdk.Schema{
		{Name: "token", Type: sdk.TypeString, Secret: true},
		{Name: "tokens", Type: sdk.TypeList, Secret: true},
		{Name: "headers", Type: sdk.TypeMap, Secret: true},
		{Name: "region", Type: sdk.TypeString},
		{Name: "absent", Type: sdk.TypeString, Secret: true},
	}
	schema = append(schema, sdk.Field{Name: "one", Type: sdk.TypeBlock, Fields: schema[:1]}, sdk.Field{Name: "many", Type: sdk.TypeBlock, Repeated: true, Fields: schema[:1]})
	got := redact.Secrets(schema, sdk.Settings{
		"token": "a", "tokens": []string{"b", "c"}, "headers": map[string]string{"x": "d"}, "region": "e",
		"one": sdk.Settings{"token": "f"}, "many": []sdk.Settings{{"token": "g"}, {}},
	})
	slices.Sort(got)
	assert.DeepEqual(t, got, []string{"a", "b", "c", "d", "f", "g"})
}

// A number of few digits stands everywhere.
func TestSecretNumbersAreBlanked(t *testing.T) {
	pin := sdk.Field{Name: "pin", Type: sdk.TypeInteger, Secret: true}
	schema := sdk.Schema{
		pin,
		{Name: "factor", Type: sdk.TypeNumber, Secret: true},
		{Name: "pins", Type: sdk.TypeList, Secret: true, Items: &sdk.Field{Type: sdk.TypeInteger}},
		{Name: "factors", Type: sdk.TypeList, Secret: true, Items: &sdk.Field{Type: sdk.TypeNumber}},
		{Name: "size", Type: sdk.TypeInteger},
		{Name: "login", Type: sdk.TypeBlock, Repeated: true, Fields: sdk.Schema{pin}},
	}
	r := redact.New(redact.Secrets(schema, sdk.Settings{
		"pin": int64(70123456), "factor": 0.1234567, "pins": []int64{8080, -445566}, "factors": []float64{0.000125, 5e300}, "size": int64(999999),
		"login": []sdk.Settings{{"pin": int64(9007199254740992)}, {"pin": int64(4000)}},
	})...)
	for text, want := range map[string]string{
		"pin=70123456":                                        "pin=(secret)",
		fmt.Sprintf("%v", float64(70123456)):                  "(secret)",
		"7.0123456e+07 and 70123456.0":                        "(secret) and (secret).0",
		`{"factor":0.1234567}`:                                `{"factor":(secret)}`,
		"-445566":                                             "(secret)",
		"9007199254740992":                                    "(secret)",
		"port 8080, 4000 times, 0.000125":                     "port 8080, 4000 times, 0.000125",
		"999999 is no secret":                                 "999999 is no secret",
		"5e+300 has many digits":                              "(secret) has many digits",
		base64.StdEncoding.EncodeToString([]byte("70123456")): "(secret)=",
	} {
		assert.Check(t, is.Equal(r.Text(text), want), text)
	}
}

// Nothing that is known comes through, whatever is around it, as it is or in base64.
func FuzzText(f *testing.F) {
	f.Add("hunter2hunter2", "a", "b")
	f.Add("\n  ab\"\\cdef\n", "", "=")
	f.Fuzz(func(t *testing.T, secret, before, after string) {
		r := redact.New(secret)
		if len(strings.TrimSpace(secret)) < redact.Shortest {
			assert.Equal(t, r.Text(before+secret+after), before+secret+after)
			return
		}
		if strings.Contains(redact.Blank, strings.TrimSpace(secret)) {
			t.Skip("the secret is what stands for a secret")
		}
		assert.Assert(t, r.Text(before+secret+after) != before+secret+after)
		encoded := base64.StdEncoding.EncodeToString([]byte(secret))
		assert.Assert(t, !strings.Contains(r.Text(encoded), strings.TrimRight(encoded, "=")))
	})
}
