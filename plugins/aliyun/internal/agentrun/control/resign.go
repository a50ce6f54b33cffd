package control

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/sign"
)

// resigner stands between the SDK and the wire for one call: it brings the caller's
// context, which the SDK knows nothing of, signs anew, and keeps the answer.
type resigner struct {
	ctx  context.Context //nolint:containedctx // for one call
	host string
	keys sign.Credentials
	next http.RoundTripper

	status int
	header http.Header
	body   []byte
}

// dropped are headers of the signature that is replaced.
var dropped = []string{"Authorization", "Date", "Content-MD5", "x-acs-signature-method", "x-acs-signature-version", "x-acs-credentials-provider", "x-acs-security-token"}

// RoundTrip implements http.RoundTripper.
func (r *resigner) RoundTrip(given *http.Request) (*http.Response, error) {
	if given.URL.Host != r.host {
		return nil, fmt.Errorf("a request to %s is not signed: the control plane is %s", given.URL.Host, r.host)
	}
	var body []byte
	if given.Body != nil {
		var err error
		body, err = io.ReadAll(given.Body)
		given.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	req := given.Clone(r.ctx)
	req.Host = r.host
	req.Header = http.Header{}
	for name, values := range given.Header { // their names are not in canonical form
		if isDropped(name) || len(body) == 0 && strings.EqualFold(name, "Content-Type") {
			continue
		}
		for _, value := range values {
			req.Header.Add(name, value)
		}
	}
	req.Body, req.ContentLength = http.NoBody, int64(len(body))
	if len(body) > 0 {
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // never fails, by its documentation
	sign.Control(req, r.keys, body, hex.EncodeToString(nonce), time.Now())

	resp, err := r.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	resp.Header.Del("Location") // the SDK would follow it
	answer, err := io.ReadAll(io.LimitReader(resp.Body, agentrun.MaxAnswer+1))
	if err == nil && len(answer) > agentrun.MaxAnswer {
		err = errors.New("the answer is too long")
	}
	if err != nil {
		return nil, err
	}
	r.status, r.header, r.body = resp.StatusCode, resp.Header, answer
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	return resp, nil
}

func isDropped(name string) bool {
	for _, d := range dropped {
		if strings.EqualFold(name, d) {
			return true
		}
	}
	return false
}

// answer reads what came.
func (r *resigner) answer(value any) error {
	if r.header == nil {
		return errors.New("no answer came")
	}
	return agentrun.Read(r.status, r.header, r.body, value)
}
