package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"
)

const (
	// postTimeout bounds one attempt, its answer included.
	postTimeout = 15 * time.Second
	// maxAnswer is how much of an answer is read, in bytes, so that the connection ends
	// in peace.
	maxAnswer = 4 << 10
)

// Sign is the signature of a report, as the header webhook-signature has it.
func Sign(secret []byte, id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%d.", id, at.Unix())
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// errAddress is why no connection is made. Whoever asked is not told the address, which
// may be one within the operator's network.
var errAddress = errors.New("the host has an address to which nothing may be posted")

// newClient returns a client that connects to what may be connected to, and follows no
// redirection. No proxy is asked: it would resolve names by itself.
func newClient(private bool, roots *tls.Config) *http.Client {
	dialer := &net.Dialer{Timeout: postTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil || !mayConnect(at.Addr(), private) {
			return errAddress
		}
		return nil
	}}
	return &http.Client{
		Timeout:       postTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, DisableKeepAlives: true, TLSHandshakeTimeout: postTimeout,
			MaxResponseHeaderBytes: 64 << 10, TLSClientConfig: roots,
		},
	}
}

// gone is the answer of who wants no more reports there.
var errGone = errors.New("the host answers that the address is gone for good")

// post makes one attempt.
func post(ctx context.Context, c *http.Client, to *url.URL, secret []byte, id string, at time.Time, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("the address makes no request")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "sandbox-broker")
	req.Header.Set("webhook-id", id)
	req.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	req.Header.Set("webhook-signature", Sign(secret, id, at, body))
	resp, err := c.Do(req)
	if err != nil {
		return withoutAddress(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	switch {
	case resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode == http.StatusGone:
		return errGone
	default:
		return fmt.Errorf("the host answers with status %d", resp.StatusCode)
	}
}

// withoutAddress keeps the address out of logs: it may hold a secret.
func withoutAddress(err error) error {
	if errors.Is(err, errAddress) {
		return errAddress
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("the host does not answer in time")
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return errors.New("the name of the host leads nowhere")
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return errors.New("the certificate of the host is not to be trusted")
	}
	return fmt.Errorf("the host is not reached: %w", err)
}
