// Package volume keeps what tenants have of volumes: files that outlive instances.
//
// A volume has a record before its provider is asked for it, and until the provider has
// confirmed its removal, so each volume that this broker has had made is known. Data is
// never lost silently: what is removed is only what its tenant or an administrator has
// removed, and what the creator was never told of. A volume that a provider lists with this
// broker's label and without a record belongs to a state that was lost or is older: it is
// shown to the administrator, and stays. Volumes of a tenant that was removed stay too, for
// the administrator to remove; a later tenant of that name does not get them.
//
// Start with Service. What instances have is package instance's.
package volume
