package ragflow

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The languages, in RAGFlow's words.
const (
	languagePython = "python"
	languageNodeJS = "nodejs"
)

// runRequest is the body of POST /run. What else is in it is ignored, as by RAGFlow: its
// Go port sends base_image, which has no effect there either.
type runRequest struct {
	code      string
	language  string
	arguments json.RawMessage
}

// run runs code in a fresh sandbox. What becomes of it is data, with status 200.
func (d *Door) run(ctx context.Context, c rest.Call[rest.Raw]) (int, answer, error) {
	req, err := readRun(c.Body)
	if err != nil {
		return 0, answer{}, err
	}
	s := d.settings.Load()
	language := sdk.Python
	if req.language == languageNodeJS {
		language = sdk.JavaScript
	}
	keep := false
	execution, err := d.instances.Run(ctx, c.Tenant, instance.RunRequest{
		ExecuteRequest: instance.ExecuteRequest{
			Code: req.code, Language: string(language), Arguments: req.arguments, Timeout: s.Timeout, Wait: s.Wait,
		},
		Provider:  s.Provider,
		Keep:      &keep,
		FrontDoor: Name,
	})
	if err != nil {
		return unserved(err, c.RequestID)
	}
	return http.StatusOK, answerOf(execution, req.language), nil
}

// readRun reads the body and finds all that is wrong with it, as FastAPI does.
func readRun(body []byte) (runRequest, error) {
	req := runRequest{language: languagePython}
	fields := map[string]json.RawMessage{}
	if len(bytes.TrimSpace(body)) == 0 {
		return req, frontdoor.Faults{{Type: "missing", Loc: []any{"body"}, Msg: "Field required"}}
	}
	if !utf8.Valid(body) || !json.Valid(body) {
		return req, frontdoor.Faults{{Type: "json_invalid", Loc: []any{"body", 0}, Msg: "JSON decode error"}}
	}
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return req, frontdoor.Faults{{Type: "model_attributes_type", Loc: []any{"body"}, Msg: "Input should be a valid dictionary or object to extract fields from"}}
	}
	var faults frontdoor.Faults
	if raw, given := fields["code_b64"]; !given {
		faults.Add("missing", "code_b64", "Field required")
	} else if text, ok := textOf(raw); !ok {
		faults.Add("string_type", "code_b64", "Input should be a valid string")
	} else if code, err := base64.StdEncoding.Strict().DecodeString(text); err != nil {
		faults.Add("value_error", "code_b64", "Value error, Invalid base64 encoding: code_b64 must be the strict base64 of the code")
	} else if !utf8.Valid(code) {
		faults.Add("value_error", "code_b64", "Value error, Invalid base64 encoding: code_b64 must hold UTF-8")
	} else {
		req.code = string(code)
	}
	if raw, given := fields["language"]; given {
		switch text, _ := textOf(raw); text {
		case languagePython, languageNodeJS:
			req.language = text
		default:
			faults.Add("enum", "language", "Input should be 'python' or 'nodejs'")
		}
	}
	// main is called with {} where there are no arguments, as by RAGFlow's runner.
	req.arguments = json.RawMessage("{}")
	if raw := bytes.TrimSpace(fields["arguments"]); len(raw) > 0 && string(raw) != "null" {
		if raw[0] != '{' {
			faults.Add("dict_type", "arguments", "Input should be a valid dictionary")
		}
		req.arguments = raw
	}
	if len(faults) > 0 {
		return req, faults
	}
	return req, nil
}

func textOf(raw json.RawMessage) (text string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return text, json.Unmarshal(raw, &text) == nil
}
