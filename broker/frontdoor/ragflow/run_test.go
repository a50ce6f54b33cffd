package ragflow

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
)

const missingCode = `{"type":"missing","loc":["body","code_b64"],"msg":"Field required"}`

func TestWhatIsWrongWithABodyIsToldAsFastAPIDoes(t *testing.T) {
	one := func(kind, field, text string) string {
		return `[{"type":"` + kind + `","loc":["body","` + field + `"],"msg":"` + text + `"}]`
	}
	const (
		notStrict = "Value error, Invalid base64 encoding: code_b64 must be the strict base64 of the code"
		language  = "Input should be 'python' or 'nodejs'"
		dict      = "Input should be a valid dictionary"
	)
	for _, test := range []struct{ name, body, want string }{
		{"nothing", " ", `[{"type":"missing","loc":["body"],"msg":"Field required"}]`},
		{"no JSON", "{", `[{"type":"json_invalid","loc":["body",0],"msg":"JSON decode error"}]`},
		{"no UTF-8", "{\"code_b64\":\"\xff\"}", `[{"type":"json_invalid","loc":["body",0],"msg":"JSON decode error"}]`},
		{"a list", "[]", `[{"type":"model_attributes_type","loc":["body"],"msg":"Input should be a valid dictionary or object to extract fields from"}]`},
		{"null", "null", `[{"type":"model_attributes_type","loc":["body"],"msg":"Input should be a valid dictionary or object to extract fields from"}]`},
		{"no code", "{}", "[" + missingCode + "]"},
		{"code that is a number", `{"code_b64":1}`, one("string_type", "code_b64", "Input should be a valid string")},
		{"code that is null", `{"code_b64":null}`, one("string_type", "code_b64", "Input should be a valid string")},
		{"code that is not base64", `{"code_b64":"print(1)"}`, one("value_error", "code_b64", notStrict)},
		{"base64 without its end", `{"code_b64":"eA"}`, one("value_error", "code_b64", notStrict)},
		{"base64 with bits to spare", `{"code_b64":"eB=="}`, one("value_error", "code_b64", notStrict)},
		{"code that is not UTF-8", `{"code_b64":"/w=="}`, one("value_error", "code_b64", "Value error, Invalid base64 encoding: code_b64 must hold UTF-8")},
		{"another language", `{"code_b64":"","language":"javascript"}`, one("enum", "language", language)},
		{"a language that is null", `{"code_b64":"","language":null}`, one("enum", "language", language)},
		{"arguments in a list", `{"code_b64":"","arguments":[1]}`, one("dict_type", "arguments", dict)},
		{"arguments that are a text", `{"code_b64":"","arguments":"{}"}`, one("dict_type", "arguments", dict)},
		{
			"all of it at once", `{"language":3,"arguments":4}`,
			`[` + missingCode + `,{"type":"enum","loc":["body","language"],"msg":"` + language + `"},{"type":"dict_type","loc":["body","arguments"],"msg":"` + dict + `"}]`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := readRun([]byte(test.body))
			faults, ok := errors.AsType[frontdoor.Faults](err)
			assert.Assert(t, ok, "%v", err)
			p := problem(err, "r-1")
			assert.Equal(t, p.Status, 422)
			told, err := json.Marshal(p.Body.(refusal).Detail)
			assert.NilError(t, err)
			assert.Equal(t, string(told), test.want)
			assert.Check(t, faults.Error() != "")
		})
	}
}

func TestWhatABodyMeans(t *testing.T) {
	for _, test := range []struct{ name, body, code, language, arguments string }{
		{"the least", `{"code_b64":""}`, "", languagePython, "{}"},
		{"no arguments", `{"code_b64":"eA==","language":"nodejs","arguments":null}`, "x", languageNodeJS, "{}"},
		{"all", `{"code_b64":"eA==","language":"python","arguments":{"a":true},"base_image":"b"}`, "x", languagePython, `{"a":true}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			req, err := readRun([]byte(test.body))
			assert.NilError(t, err)
			assert.Equal(t, req.code, test.code)
			assert.Equal(t, req.language, test.language)
			assert.Equal(t, string(req.arguments), test.arguments)
		})
	}
}

func FuzzBody(f *testing.F) {
	for _, seed := range []string{"", "{}", "null", `{"code_b64":"eA==","language":"nodejs","arguments":{"a":1}}`, `{"code_b64":1,"arguments":[]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := readRun(body)
		if err != nil {
			p := problem(err, "r")
			assert.Equal(t, p.Status, 422)
			return
		}
		assert.Assert(t, utf8.ValidString(req.code))
		assert.Assert(t, req.language == languagePython || req.language == languageNodeJS)
		arguments := map[string]any{}
		assert.NilError(t, json.Unmarshal(req.arguments, &arguments))
		again, err := json.Marshal(map[string]any{"code_b64": base64.StdEncoding.EncodeToString([]byte(req.code)), "language": req.language, "arguments": req.arguments})
		assert.NilError(t, err)
		second, err := readRun(again)
		assert.NilError(t, err)
		assert.Equal(t, second.code, req.code)
	})
}
