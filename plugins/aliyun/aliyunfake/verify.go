package aliyunfake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Keys are those of an account.
type Keys struct {
	AccessKeyID, AccessKeySecret string
	// SecurityToken goes with temporary keys.
	SecurityToken string
}

// The signatures are written down here a second time, from the service's documentation:
// a verifier that calls the client's own code agrees with whatever it does.

var (
	controlForm = regexp.MustCompile(`^ACS3-HMAC-SHA256 Credential=([^,/]+),SignedHeaders=([a-z0-9;-]+),Signature=([0-9a-f]{64})$`)
	dataForm    = regexp.MustCompile(`^AGENTRUN4-HMAC-SHA256 Credential=([^,/]+)/([0-9]{8})/([a-z0-9-]+)/agentrun/aliyun_v4_request,SignedHeaders=([a-z0-9;-]+),Signature=([0-9a-f]{64})$`)
)

func hexSHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func hmacSHA256(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// canonicalRequest is what both signatures are made of. target is the path and the query
// as they came over the wire.
func canonicalRequest(method, target, host string, header http.Header, signed, payload string) string {
	path, query, _ := strings.Cut(target, "?")
	if path == "" {
		path = "/"
	}
	text := method + "\n" + path + "\n" + canonicalQuery(query) + "\n"
	for name := range strings.SplitSeq(signed, ";") {
		values := slices.Clone(header.Values(name))
		if name == "host" {
			values = []string{host}
		}
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		slices.Sort(values)
		text += name + ":" + strings.Join(values, ",") + "\n"
	}
	return text + "\n" + signed + "\n" + payload
}

func canonicalQuery(query string) string {
	last := map[string]string{}
	for part := range strings.SplitSeq(query, "&") {
		key, value, has := strings.Cut(part, "=")
		plainKey, badKey := url.QueryUnescape(key)
		plainValue, badValue := url.QueryUnescape(value)
		if has && badKey == nil && badValue == nil {
			last[plainKey] = plainValue
		}
	}
	var pairs [][2]string
	for key, value := range last {
		pairs = append(pairs, [2]string{key, value})
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	words := make([]string, len(pairs))
	for i, pair := range pairs {
		words[i] = percent(pair[0]) + "=" + percent(pair[1])
	}
	return strings.Join(words, "&")
}

// percent encodes all bytes but the unreserved ones of RFC 3986.
func percent(text string) string {
	var out strings.Builder
	for _, b := range []byte(text) {
		if b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("-_.~", b) >= 0 {
			out.WriteByte(b)
			continue
		}
		out.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{b})))
	}
	return out.String()
}

func controlSignature(canonical, secret string) string {
	return hex.EncodeToString(hmacSHA256([]byte(secret), "ACS3-HMAC-SHA256\n"+hexSHA256([]byte(canonical))))
}

func dataSignature(canonical, secret, date, region string) string {
	key := []byte("aliyun_v4" + secret)
	for _, step := range []string{date, region, "agentrun", "aliyun_v4_request"} {
		key = hmacSHA256(key, step)
	}
	return hex.EncodeToString(hmacSHA256(key, "AGENTRUN4-HMAC-SHA256\n"+hexSHA256([]byte(canonical))))
}

// signs says whether the list of signed headers has what it must: it is sorted, has these
// names, and all x-acs-* that were sent.
func signs(list string, header http.Header, must ...string) bool {
	names := strings.Split(list, ";")
	for name := range header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-acs-") {
			must = append(must, lower)
		}
	}
	return slices.IsSorted(names) && !slices.ContainsFunc(must, func(name string) bool { return !slices.Contains(names, name) })
}

const dateForm = "2006-01-02T15:04:05Z"

// verifyControl returns how the gateway refuses a request; status 0 means that it does
// not.
func (c *Cloud) verifyControl(r *http.Request, body []byte, action string) (status int, code string) {
	m := controlForm.FindStringSubmatch(r.Header.Get("Authorization"))
	if m == nil || !signs(m[2], r.Header, "host", "x-acs-action", "x-acs-content-sha256", "x-acs-date", "x-acs-signature-nonce", "x-acs-version") {
		return 400, "IncompleteSignature"
	}
	at, err := time.Parse(dateForm, r.Header.Get("X-Acs-Date"))
	nonce := r.Header.Get("X-Acs-Signature-Nonce")
	c.mu.Lock()
	used := c.nonces[nonce]
	c.nonces[nonce] = true
	keys, expelled := c.Keys, c.expelled
	c.mu.Unlock()
	payload := hexSHA256(body)
	switch {
	case err != nil || time.Since(at).Abs() > skew:
		return 400, "InvalidTimeStamp.Expired"
	case m[1] != keys.AccessKeyID:
		return 404, "InvalidAccessKeyId.NotFound"
	case expelled, r.Header.Get("X-Acs-Security-Token") != keys.SecurityToken,
		keys.SecurityToken != "" && r.Header.Get("X-Acs-Accesskey-Id") != keys.AccessKeyID:
		return 400, "InvalidSecurityToken.Expired"
	case r.Header.Get("X-Acs-Version") != "2025-09-10", r.Header.Get("X-Acs-Action") != action:
		return 400, "InvalidAction.NotFound"
	case r.Header.Get("X-Acs-Content-Sha256") != payload,
		controlSignature(canonicalRequest(r.Method, r.RequestURI, r.Host, r.Header, m[2], payload), keys.AccessKeySecret) != m[3]:
		return 400, "SignatureDoesNotMatch"
	case used:
		return 400, "SignatureNonceUsed"
	}
	return 0, ""
}

const unsigned = "UNSIGNED-PAYLOAD"

// verifyData says whether the data plane takes a request.
func (c *Cloud) verifyData(r *http.Request) bool {
	m := dataForm.FindStringSubmatch(r.Header.Get("Agentrun-Authorization"))
	if m == nil || !signs(m[4], r.Header, "host", "x-acs-content-sha256", "x-acs-date") {
		return false
	}
	c.mu.Lock()
	keys, region, expelled := c.Keys, c.Region, c.expelled
	c.mu.Unlock()
	at, err := time.Parse(dateForm, r.Header.Get("X-Acs-Date"))
	canonical := canonicalRequest(r.Method, r.RequestURI, r.Host, r.Header, m[4], unsigned)
	return !expelled && err == nil && time.Since(at).Abs() <= skew && at.Format("20060102") == m[2] &&
		m[1] == keys.AccessKeyID && m[3] == region && dataSignature(canonical, keys.AccessKeySecret, m[2], region) == m[5] &&
		r.Header.Get("X-Acs-Content-Sha256") == unsigned && r.Header.Get("X-Acs-Security-Token") == keys.SecurityToken
}
