#!/bin/sh
# Makes an authority and the certificates of three hosts, for replicas of Isobar and
# for etcd: certificates.sh DIRECTORY NAME=ADDRESS[,ADDRESS...] ...
# etcd accepts a member only from an address that its certificate has. The files of each
# host are in DIRECTORY/NAME. Keep ca.key off the hosts.
set -eu
dir=$1
shift
mkdir -p "$dir"
days=365
if [ ! -f "$dir/ca.key" ]; then
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj '/CN=isobar replicas' \
		-addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign,cRLSign' \
		-keyout "$dir/ca.key" -out "$dir/ca.pem" 2>/dev/null
fi
for host in "$@"; do
	name=${host%%=*} addresses=$(echo "${host#*=}" | sed 's/,/,IP:/g')
	mkdir -p "$dir/$name"
	cp "$dir/ca.pem" "$dir/$name/ca.pem"
	# replica: shown to other replicas, and to etcd as a client. etcd: shown by etcd.
	for who in replica etcd; do
		names="DNS:$name,IP:$addresses"
		[ "$who" = etcd ] || names="$names,URI:spiffe://example.org/isobar/prod/$name"
		openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" \
			-keyout "$dir/$name/$who.key" -out "$dir/$name/$who.csr" 2>/dev/null
		printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\nkeyUsage=critical,digitalSignature\n' "$names" >"$dir/$name/$who.ext"
		openssl x509 -req -in "$dir/$name/$who.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial -days "$days" \
			-extfile "$dir/$name/$who.ext" -out "$dir/$name/$who.pem" 2>/dev/null
		rm "$dir/$name/$who.csr" "$dir/$name/$who.ext"
	done
done
