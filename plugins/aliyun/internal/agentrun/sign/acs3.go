package sign

import (
	"encoding/hex"
	"net/http"
	"time"
)

const algorithm3 = "ACS3-HMAC-SHA256"

// Control signs a request to the control plane, with its body. The nonce must not be
// used twice.
func Control(req *http.Request, c Credentials, body []byte, nonce string, now time.Time) {
	stamp(req, c, now, Hash(body))
	req.Header.Set(HeaderNonce, nonce)
	if c.SecurityToken != "" {
		req.Header.Set(HeaderKeyID, c.AccessKeyID)
	}
	names := namesOf(req.Header)
	if req.Header.Get("Content-Type") != "" {
		names = append(names, "content-type")
	}
	form := ControlCanonical(req, names, Hash(body))
	req.Header.Set(HeaderAuthorization, algorithm3+" Credential="+c.AccessKeyID+
		",SignedHeaders="+form.SignedHeaders+",Signature="+ControlSignature(form, c.AccessKeySecret))
}

// ControlCanonical is the canonical form of a request to the control plane.
func ControlCanonical(req *http.Request, names []string, payload string) Canonical {
	return canonical(req.Method, req.URL, hostOf(req), req.Header, names, Query(req.URL.RawQuery), payload)
}

// ControlText is what is signed.
func ControlText(form Canonical) string { return algorithm3 + "\n" + Hash([]byte(form.Request)) }

// ControlSignature is the signature of a canonical form.
func ControlSignature(form Canonical, secret string) string {
	return hex.EncodeToString(mac([]byte(secret), ControlText(form)))
}
