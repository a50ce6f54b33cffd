package aliyunfake

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/sign"
)

var (
	controlForm = regexp.MustCompile(`^ACS3-HMAC-SHA256 Credential=([^,/]+),SignedHeaders=([a-z0-9;-]+),Signature=([0-9a-f]{64})$`)
	dataForm    = regexp.MustCompile(`^AGENTRUN4-HMAC-SHA256 Credential=([^,/]+)/([0-9]{8})/([a-z0-9-]+)/agentrun/aliyun_v4_request,SignedHeaders=([a-z0-9;-]+),Signature=([0-9a-f]{64})$`)
)

// verifyControl returns how the gateway refuses a request; status 0 means that it does
// not.
func (c *Cloud) verifyControl(r *http.Request, body []byte, action string) (status int, code string) {
	m := controlForm.FindStringSubmatch(r.Header.Get(sign.HeaderAuthorization))
	if m == nil {
		return 400, "IncompleteSignature"
	}
	names := strings.Split(m[2], ";")
	for _, must := range []string{"host", "x-acs-action", "x-acs-content-sha256", "x-acs-date", "x-acs-signature-nonce", "x-acs-version"} {
		if !slices.Contains(names, must) {
			return 400, "IncompleteSignature"
		}
	}
	for name := range r.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-acs-") && !slices.Contains(names, lower) {
			return 400, "IncompleteSignature"
		}
	}
	at, err := time.Parse(sign.DateLayout, r.Header.Get(sign.HeaderDate))
	nonce := r.Header.Get(sign.HeaderNonce)
	c.mu.Lock()
	used := c.nonces[nonce]
	c.nonces[nonce] = true
	keys, expelled := c.Keys, c.expelled
	c.mu.Unlock()
	switch {
	case err != nil || time.Since(at).Abs() > skew:
		return 400, "InvalidTimeStamp.Expired"
	case m[1] != keys.AccessKeyID:
		return 404, "InvalidAccessKeyId.NotFound"
	case expelled, r.Header.Get(sign.HeaderToken) != keys.SecurityToken:
		return 400, "InvalidSecurityToken.Expired"
	case r.Header.Get("X-Acs-Version") != "2025-09-10", r.Header.Get("X-Acs-Action") != action:
		return 400, "InvalidAction.NotFound"
	case r.Header.Get(sign.HeaderContentHash) != sign.Hash(body),
		sign.ControlSignature(sign.ControlCanonical(r, names, sign.Hash(body)), keys.AccessKeySecret) != m[3]:
		return 400, "SignatureDoesNotMatch"
	case used:
		return 400, "SignatureNonceUsed"
	}
	return 0, ""
}

// verifyData says whether the data plane takes a request.
func (c *Cloud) verifyData(r *http.Request) bool {
	m := dataForm.FindStringSubmatch(r.Header.Get(sign.HeaderDataAuthorization))
	if m == nil {
		return false
	}
	names := strings.Split(m[4], ";")
	for _, must := range []string{"host", "x-acs-content-sha256", "x-acs-date"} {
		if !slices.Contains(names, must) {
			return false
		}
	}
	c.mu.Lock()
	keys, region, expelled := c.Keys, c.Region, c.expelled
	c.mu.Unlock()
	at, err := time.Parse(sign.DateLayout, r.Header.Get(sign.HeaderDate))
	_, signature := sign.DataSignature(r, names, keys.AccessKeySecret, region, m[2])
	return !expelled && err == nil && time.Since(at).Abs() <= skew && at.Format("20060102") == m[2] &&
		m[1] == keys.AccessKeyID && m[3] == region && signature == m[5] &&
		r.Header.Get(sign.HeaderContentHash) == sign.UnsignedPayload && r.Header.Get(sign.HeaderToken) == keys.SecurityToken
}
