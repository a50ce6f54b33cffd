// Package sign has the signatures of the two planes of AgentRun: ACS3 of the control
// plane and AGENTRUN4 of the data plane. It sends nothing, and knows no credentials
// but those it is given. The steps are those of the services' official clients, whose
// results are in testdata.
package sign

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Credentials are what requests are signed with.
type Credentials struct {
	AccessKeyID, AccessKeySecret string
	// SecurityToken goes with temporary keys; else it is empty.
	SecurityToken string
}

// Headers in which signatures travel, and what stands for a body that is not signed.
const (
	HeaderAuthorization     = "Authorization"
	HeaderDataAuthorization = "Agentrun-Authorization"
	HeaderDate              = "X-Acs-Date"
	HeaderContentHash       = "X-Acs-Content-Sha256"
	HeaderNonce             = "X-Acs-Signature-Nonce"
	HeaderToken             = "X-Acs-Security-Token"
	HeaderKeyID             = "X-Acs-Accesskey-Id"
	UnsignedPayload         = "UNSIGNED-PAYLOAD"
	// DateLayout is that of HeaderDate, in UTC.
	DateLayout = "2006-01-02T15:04:05Z"
)

// Canonical is the text that a signature stands for, before it is hashed.
type Canonical struct {
	Request, SignedHeaders string
}

// canonical puts a request into the form that both planes sign. names are the headers
// to sign, in lower case, in any order.
func canonical(method string, u *url.URL, host string, header http.Header, names []string, query, payload string) Canonical {
	slices.Sort(names)
	names = slices.Compact(names)
	var lines strings.Builder
	for _, name := range names {
		value := host
		if name != "host" {
			values := slices.Clone(header.Values(name))
			for i := range values {
				values[i] = strings.TrimSpace(values[i])
			}
			slices.Sort(values)
			value = strings.Join(values, ",")
		}
		lines.WriteString(name + ":" + strings.TrimSpace(value) + "\n")
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	signed := strings.Join(names, ";")
	return Canonical{strings.Join([]string{method, path, query, lines.String(), signed, payload}, "\n"), signed}
}

// Query sorts a query by its decoded keys and encodes both sides anew. Of a key that
// stands twice the last counts, and parts without "=" do not: so does the service.
func Query(raw string) string {
	values := map[string]string{}
	for part := range strings.SplitSeq(raw, "&") {
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			continue
		}
		values[unescape(key)] = unescape(value)
	}
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	parts := make([]string, len(keys))
	for i, key := range keys {
		parts[i] = escape(key) + "=" + escape(values[key])
	}
	return strings.Join(parts, "&")
}

func unescape(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil {
		return plain
	}
	return s
}

// escape leaves the unreserved characters of RFC 3986 alone.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// Hash is the lower-case hex SHA-256 of data.
func Hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hostOf(req *http.Request) string {
	if req.Host != "" {
		return req.Host
	}
	return req.URL.Host
}

// stamp sets the headers that both planes want.
func stamp(req *http.Request, c Credentials, now time.Time, payload string) {
	req.Header.Set(HeaderDate, now.UTC().Format(DateLayout))
	req.Header.Set(HeaderContentHash, payload)
	if c.SecurityToken != "" {
		req.Header.Set(HeaderToken, c.SecurityToken)
	}
}

// namesOf lists the headers to sign: host and all x-acs-*.
func namesOf(header http.Header) []string {
	names := []string{"host"}
	for name := range header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-acs-") {
			names = append(names, lower)
		}
	}
	return names
}
