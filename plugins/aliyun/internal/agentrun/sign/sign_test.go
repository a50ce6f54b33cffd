package sign_test

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/sign"
)

type expected struct {
	CanonicalRequest string            `json:"canonical_request"`
	StringToSign     string            `json:"string_to_sign"`
	SigningKeyHex    string            `json:"signing_key_hex"`
	Signature        string            `json:"signature"`
	Authorization    string            `json:"authorization"`
	Headers          map[string]string `json:"headers"`
}

type vectors struct {
	Data struct {
		Vectors []struct {
			Name  string `json:"name"`
			Input struct {
				Method      string    `json:"method"`
				URL         string    `json:"url"`
				KeyID       string    `json:"access_key_id"`
				Secret      string    `json:"access_key_secret"`
				Token       string    `json:"security_token"`
				Region      string    `json:"region"`
				ContentType string    `json:"content_type_signed"`
				Time        time.Time `json:"sign_time_utc"`
			} `json:"input"`
			Expected expected `json:"expected"`
		} `json:"vectors"`
	} `json:"agentrun4_hmac_sha256"`
	Control struct {
		Vectors []struct {
			Name  string `json:"name"`
			Input struct {
				KeyID        string            `json:"access_key_id"`
				Secret       string            `json:"access_key_secret"`
				Headers      map[string]string `json:"headers"`
				Method       string            `json:"method"`
				Path         string            `json:"path"`
				Payload      string            `json:"payload_sha256"`
				Body         string            `json:"body"`
				QueryEncoded string            `json:"query_encoded"`
			} `json:"input"`
			Expected expected `json:"expected"`
		} `json:"vectors"`
	} `json:"acs3_hmac_sha256"`
}

func read(t *testing.T) vectors {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	assert.NilError(t, err)
	var v vectors
	assert.NilError(t, json.Unmarshal(text, &v))
	assert.Equal(t, len(v.Data.Vectors), 9)
	assert.Equal(t, len(v.Control.Vectors), 6)
	return v
}

func TestSignaturesOfTheDataPlaneAreThoseOfTheOfficialClient(t *testing.T) {
	for _, v := range read(t).Data.Vectors {
		t.Run(v.Name, func(t *testing.T) {
			req, err := http.NewRequest(v.Input.Method, v.Input.URL, nil)
			assert.NilError(t, err)
			sign.Data(req, sign.Credentials{AccessKeyID: v.Input.KeyID, AccessKeySecret: v.Input.Secret, SecurityToken: v.Input.Token}, v.Input.Region, v.Input.Time)
			names := []string{"host", "x-acs-date", "x-acs-content-sha256"}
			if v.Input.Token != "" {
				names = append(names, "x-acs-security-token")
			}
			if v.Input.ContentType != "" {
				req.Header.Set("Content-Type", v.Input.ContentType)
				names = append(names, "content-type")
			} else {
				assert.Equal(t, req.Header.Get(sign.HeaderDataAuthorization), v.Expected.Headers[sign.HeaderDataAuthorization])
			}
			date := v.Input.Time.Format("20060102")
			form := sign.DataCanonical(req, names)
			assert.Equal(t, form.Request, v.Expected.CanonicalRequest)
			assert.Equal(t, sign.DataText(form), v.Expected.StringToSign)
			assert.Equal(t, hex.EncodeToString(sign.DataKey(v.Input.Secret, v.Input.Region, date)), v.Expected.SigningKeyHex)
			_, signature := sign.DataSignature(req, names, v.Input.Secret, v.Input.Region, date)
			assert.Equal(t, signature, v.Expected.Signature)
		})
	}
}

func TestSignaturesOfTheControlPlaneAreThoseOfTheOfficialClient(t *testing.T) {
	for _, v := range read(t).Control.Vectors {
		t.Run(v.Name, func(t *testing.T) {
			u := &url.URL{Path: v.Input.Path, RawQuery: v.Input.QueryEncoded}
			req := &http.Request{Method: v.Input.Method, URL: u, Header: http.Header{}}
			var names []string
			for name, value := range v.Input.Headers {
				lower := strings.ToLower(name)
				switch {
				case lower == "host":
					req.Host = value
				case lower != "content-type" && !strings.HasPrefix(lower, "x-acs-"):
					continue
				default:
					req.Header.Add(name, value)
				}
				names = append(names, lower)
			}
			form := sign.ControlCanonical(req, names, v.Input.Payload)
			assert.Equal(t, form.Request, v.Expected.CanonicalRequest)
			assert.Equal(t, sign.ControlText(form), v.Expected.StringToSign)
			assert.Equal(t, sign.ControlSignature(form, v.Input.Secret), v.Expected.Signature)
			if nonce := req.Header.Get(sign.HeaderNonce); nonce != "" {
				at, err := time.Parse(sign.DateLayout, req.Header.Get(sign.HeaderDate))
				assert.NilError(t, err)
				credentials := sign.Credentials{AccessKeyID: v.Input.KeyID, AccessKeySecret: v.Input.Secret, SecurityToken: req.Header.Get(sign.HeaderToken)}
				sign.Control(req, credentials, []byte(v.Input.Body), nonce, at)
				assert.Equal(t, req.Header.Get(sign.HeaderAuthorization), v.Expected.Authorization)
			}
		})
	}
}

func TestWhatIsSignedCannotBeChanged(t *testing.T) {
	type input struct {
		method, url, secret, token, region string
		at                                 time.Time
	}
	at := time.Date(2026, 11, 21, 7, 30, 5, 0, time.UTC)
	base := input{"GET", "https://host.example/path?a=1&b=2", "secret", "token", "cn-hangzhou", at}
	of := func(in input) string {
		req, err := http.NewRequest(in.method, in.url, nil)
		assert.NilError(t, err)
		sign.Data(req, sign.Credentials{AccessKeyID: "id", AccessKeySecret: in.secret, SecurityToken: in.token}, in.region, in.at)
		_, signature, _ := strings.Cut(req.Header.Get(sign.HeaderDataAuthorization), "Signature=")
		return signature
	}
	changes := map[string]func(*input){
		"the method": func(in *input) { in.method = "POST" },
		"the port":   func(in *input) { in.url = "https://host.example:8443/path?a=1&b=2" },
		"a value":    func(in *input) { in.url = "https://host.example/path?a=1&b=3" },
		"the date":   func(in *input) { in.at = at.Add(time.Second) },
		"the region": func(in *input) { in.region = "cn-shanghai" },
		"the secret": func(in *input) { in.secret = "Secret" },
		"the token":  func(in *input) { in.token = "Token" },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			in := base
			change(&in)
			assert.Check(t, of(in) != of(base))
		})
	}
	in := base
	in.url = "https://host.example/path?b=2&a=1"
	assert.Check(t, is.Equal(of(in), of(base)), "the order of the query does not matter")
}

func FuzzQuery(f *testing.F) {
	f.Add("a=1&b=%20+&a=2&c")
	f.Fuzz(func(t *testing.T, raw string) {
		once := sign.Query(raw)
		assert.Equal(t, sign.Query(once), once)
	})
}
