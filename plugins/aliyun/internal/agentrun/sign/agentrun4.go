package sign

import (
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

const (
	algorithm4 = "AGENTRUN4-HMAC-SHA256"
	product    = "agentrun"
	scopeEnd   = "aliyun_v4_request"
)

// Data signs a request to the data plane. The body is not part of the signature.
func Data(req *http.Request, c Credentials, region string, now time.Time) {
	stamp(req, c, now, UnsignedPayload)
	date := now.UTC().Format("20060102")
	names := namesOf(req.Header)
	signed, signature := DataSignature(req, names, c.AccessKeySecret, region, date)
	req.Header.Set(HeaderDataAuthorization, algorithm4+" Credential="+
		strings.Join([]string{c.AccessKeyID, date, region, product, scopeEnd}, "/")+
		",SignedHeaders="+signed+",Signature="+signature)
}

// DataSignature is the signature of a request over the named headers.
func DataSignature(req *http.Request, names []string, secret, region, date string) (signed, signature string) {
	form := DataCanonical(req, names)
	return form.SignedHeaders, hex.EncodeToString(mac(DataKey(secret, region, date), DataText(form)))
}

// DataCanonical is the canonical form of a request to the data plane.
func DataCanonical(req *http.Request, names []string) Canonical {
	return canonical(req.Method, req.URL, hostOf(req), req.Header, names, Query(req.URL.RawQuery), UnsignedPayload)
}

// DataText is what is signed.
func DataText(form Canonical) string { return algorithm4 + "\n" + Hash([]byte(form.Request)) }

// DataKey derives the key of a day and a region.
func DataKey(secret, region, date string) []byte {
	key := mac([]byte("aliyun_v4"+secret), date)
	for _, text := range []string{region, product, scopeEnd} {
		key = mac(key, text)
	}
	return key
}
