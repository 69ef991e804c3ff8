// Makes what is shown like what was made anew, in place: elements that stay keep the focus, what is selected in them, how
// far they are scrolled, and clicks that have begun on them. Listeners are not carried over: views that use this listen
// on the element above.
//
// An element with `data-key` only ever becomes one with the same key, so that a click on a row meets the row that was
// aimed at, or nothing. Keys come in the same order each time.

const keyOf = (node) => node.dataset?.key;
const isSame = (old, fresh) => old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);

// The page's policy lets scripts set styles, but not attributes that hold them.
function copyAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) if (name !== 'style' && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (name !== 'style' && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
}

function morphNode(old, fresh) {
  if (fresh.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  copyAttributes(old, fresh);
  morph(old, [...fresh.childNodes]);
}

export function morph(element, children) {
  const keys = new Set(children.map(keyOf));
  for (const old of [...element.childNodes]) if (!keys.has(keyOf(old))) old.remove();
  children.forEach((fresh, i) => {
    const old = element.childNodes[i];
    if (!old) element.append(fresh);
    else if (isSame(old, fresh)) morphNode(old, fresh);
    else if (keyOf(fresh)) element.insertBefore(fresh, old);
    else old.replaceWith(fresh);
  });
  while (element.childNodes.length > children.length) element.lastChild.remove();
}
