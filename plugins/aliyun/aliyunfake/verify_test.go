package aliyunfake //nolint:testpackage // the signatures are nobody else's business

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// The fake must not agree with the plugin but with the official clients, whose results
// the vectors are.
func TestTheFakeSignsAsTheOfficialClientsDo(t *testing.T) {
	text, err := os.ReadFile("../internal/agentrun/sign/testdata/vectors.json")
	assert.NilError(t, err)
	var vectors struct {
		Data, Control struct {
			Vectors []struct {
				Name  string `json:"name"`
				Input struct {
					Method  string            `json:"method"`
					URL     string            `json:"url"`
					Path    string            `json:"path"`
					Query   string            `json:"query_encoded"`
					Secret  string            `json:"access_key_secret"`
					Token   string            `json:"security_token"`
					Region  string            `json:"region"`
					Type    string            `json:"content_type_signed"`
					Headers map[string]string `json:"headers"`
					Payload string            `json:"payload_sha256"`
				} `json:"input"`
				Expected struct {
					Canonical string            `json:"canonical_request"`
					Signature string            `json:"signature"`
					Headers   map[string]string `json:"headers"`
				} `json:"expected"`
			} `json:"vectors"`
		}
	}
	var groups map[string]json.RawMessage
	assert.NilError(t, json.Unmarshal(text, &groups))
	assert.NilError(t, json.Unmarshal(groups["agentrun4_hmac_sha256"], &vectors.Data))
	assert.NilError(t, json.Unmarshal(groups["acs3_hmac_sha256"], &vectors.Control))
	assert.Equal(t, len(vectors.Data.Vectors), 9)
	assert.Equal(t, len(vectors.Control.Vectors), 6)
	signedBy := func(canonical string) string {
		lines := strings.Split(canonical, "\n")
		return lines[len(lines)-2]
	}
	for _, v := range vectors.Data.Vectors {
		t.Run(v.Name, func(t *testing.T) {
			u, err := url.Parse(v.Input.URL)
			assert.NilError(t, err)
			header := http.Header{}
			for name, value := range v.Expected.Headers {
				header.Set(name, value)
			}
			header.Set("Content-Type", v.Input.Type)
			header.Set("X-Acs-Security-Token", v.Input.Token)
			got := canonicalRequest(v.Input.Method, u.RequestURI(), u.Host, header, signedBy(v.Expected.Canonical), unsigned)
			assert.Equal(t, got, v.Expected.Canonical)
			date := strings.ReplaceAll(header.Get("X-Acs-Date")[:10], "-", "")
			assert.Equal(t, dataSignature(got, v.Input.Secret, date, v.Input.Region), v.Expected.Signature)
		})
	}
	for _, v := range vectors.Control.Vectors {
		t.Run(v.Name, func(t *testing.T) {
			header := http.Header{}
			for name, value := range v.Input.Headers {
				header.Add(name, value)
			}
			got := canonicalRequest(v.Input.Method, v.Input.Path+"?"+v.Input.Query, header.Get("Host"), header, signedBy(v.Expected.Canonical), v.Input.Payload)
			assert.Equal(t, got, v.Expected.Canonical)
			assert.Equal(t, controlSignature(got, v.Input.Secret), v.Expected.Signature)
		})
	}
}
