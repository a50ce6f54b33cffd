package wire

import (
	"context"
	"errors"
	"io"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/validtext"
)

// SetNetwork implements sdk.NetworkGovernor.
func (c *Client) SetNetwork(ctx context.Context, instanceID string, policy sdk.NetworkPolicy) error {
	_, err := c.network.SetNetwork(ctx, &providerv1.SetNetworkRequest{InstanceId: instanceID, Policy: EncodeNetwork(&policy)})
	return DecodeError(err)
}

// FollowNetwork implements sdk.NetworkGovernor.
func (c *Client) FollowNetwork(ctx context.Context, report func(sdk.NetworkReport) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.network.FollowNetwork(ctx, &providerv1.FollowNetworkRequest{})
	if err != nil {
		return DecodeError(err)
	}
	var quiet silence
	for {
		message, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return misbehaved("stopped telling of its networks by itself")
		case err != nil:
			return DecodeError(err)
		}
		news, err := decodeNetworkReport(message)
		if err == nil {
			err = quiet.broken(len(news.Connections) + int(min(news.Lost, 1)))
		}
		if err == nil {
			err = report(news)
		}
		if err != nil {
			return err
		}
	}
}

// DecodeNetwork is the reverse. Whether the policy is one is for the provider to say.
func DecodeNetwork(w *providerv1.NetworkPolicy) *sdk.NetworkPolicy {
	if w == nil {
		return nil
	}
	p := &sdk.NetworkPolicy{
		MaxConnections: int(w.GetMaxConnections()), MaxBytes: w.GetMaxBytes(),
		TenantConnections: int(w.GetTenantConnections()), TenantBytes: w.GetTenantBytes(),
	}
	for _, wr := range w.GetRules() {
		r := sdk.NetworkRule{Host: wr.GetHost(), Methods: wr.GetMethods(), Paths: wr.GetPaths(), WebSocket: wr.GetWebsocket(), TCP: wr.GetTcp(), Private: wr.GetPrivate()}
		for _, port := range wr.GetPorts() {
			r.Ports = append(r.Ports, int(port))
		}
		p.Rules = append(p.Rules, r)
	}
	for _, ws := range w.GetSecrets() {
		p.Secrets = append(p.Secrets, sdk.NetworkSecret{Name: ws.GetName(), Header: ws.GetHeader(), Value: ws.GetValue(), Hosts: ws.GetHosts()})
	}
	return p
}

// EncodeNetworkReport is a report as messages have it.
func EncodeNetworkReport(r sdk.NetworkReport) *providerv1.FollowNetworkResponse {
	w := &providerv1.FollowNetworkResponse{Lost: r.Lost}
	for _, c := range r.Connections {
		w.Connections = append(w.Connections, &providerv1.NetworkConnection{
			InstanceId: c.InstanceID, Host: c.Host, Port: int32(c.Port), Protocol: c.Protocol, Method: c.Method,
			Verdict: string(c.Verdict), Reason: c.Reason, SentBytes: c.Sent, ReceivedBytes: c.Received,
			Began: timestamppb.New(c.Began), Duration: durationpb.New(c.Duration),
		})
	}
	return w
}

// networkProtocols are those that a report may name.
var networkProtocols = []string{"http", "https", "websocket", "tls", "tcp"}

func decodeNetworkReport(w *providerv1.FollowNetworkResponse) (sdk.NetworkReport, error) {
	if len(w.GetConnections()) > sdk.MaxNetworkReport {
		return sdk.NetworkReport{}, misbehaved("told of too many connections at once")
	}
	r := sdk.NetworkReport{Lost: max(w.GetLost(), 0)}
	for _, wc := range w.GetConnections() {
		c := sdk.NetworkConnection{
			InstanceID: wc.GetInstanceId(), Host: validtext.Printable(wc.GetHost()), Port: int(wc.GetPort()), Protocol: wc.GetProtocol(),
			Method: validtext.Printable(wc.GetMethod()), Verdict: sdk.NetworkVerdict(wc.GetVerdict()), Reason: validtext.Printable(wc.GetReason()),
			Sent: max(wc.GetSentBytes(), 0), Received: max(wc.GetReceivedBytes(), 0),
			Began: decodeTime(wc.GetBegan()), Duration: max(wc.GetDuration().AsDuration(), 0),
		}
		switch {
		case !instanceID().MatchString(c.InstanceID):
			return sdk.NetworkReport{}, misbehaved("told of a connection of no instance")
		case len(wc.GetHost()) > sdk.MaxNetworkText || len(wc.GetMethod()) > sdk.MaxNetworkText || len(wc.GetReason()) > maxText:
			return sdk.NetworkReport{}, misbehaved("described a connection with too many words")
		case !slices.Contains(networkProtocols, c.Protocol) || c.Port < 0 || c.Port > 65535,
			c.Verdict != sdk.NetworkAllowed && c.Verdict != sdk.NetworkRefused && c.Verdict != sdk.NetworkCut:
			return sdk.NetworkReport{}, misbehaved("described a connection unacceptably")
		}
		r.Connections = append(r.Connections, c)
	}
	return r, nil
}
